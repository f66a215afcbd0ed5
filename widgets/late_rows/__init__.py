"""The late rows view: what the watermark dropped, epoch by epoch."""
