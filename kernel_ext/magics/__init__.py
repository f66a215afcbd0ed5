"""The magics: they parse, call the library and show what it returns."""
