"""The commands of ``streamstate``, one in a file: they parse, call the library and print what it returns."""
