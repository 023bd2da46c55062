#!/bin/sh
# Installed as /usr/local/bin/gpu. -I: a file of the folder one stands in must not take the place of a module.
exec /opt/venv/bin/python -I -m verify.glance "$@"
