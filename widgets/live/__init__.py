"""Views while they are looked at: their pages, the thread that draws, and the line to a notebook."""
