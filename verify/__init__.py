"""Proves on the machine itself that the workspace image works, and names the cause and the fix when it does not."""
