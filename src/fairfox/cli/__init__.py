"""The `fairfox` command."""
