"""The experiments of section 4 of the paper, each a command: `ink2tex experiment NAME`."""
