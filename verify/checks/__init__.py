"""One file per subject. Files here are found, not listed: a function under `@check` is all a new check needs."""
