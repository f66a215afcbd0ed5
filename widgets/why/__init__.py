"""Why a key changed: the panel that views show below a key's changes."""
