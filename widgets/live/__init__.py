"""Views while a page shows them: their pages, their hosts, and the thread that draws."""
