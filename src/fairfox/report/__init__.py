"""An audit as people read it: sentences, charts, one HTML page, a folder of files."""
