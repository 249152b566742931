"""The packages of `embodied`, which is made of one file beside ours so that it never hides the reference's own."""
