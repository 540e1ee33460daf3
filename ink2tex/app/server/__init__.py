"""The server: a page to write on, and a REST API beside it. Start it with `ink2tex serve`."""
