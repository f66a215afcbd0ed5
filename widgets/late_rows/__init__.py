"""The late rows view: the rows that the watermark dropped, epoch by epoch."""
