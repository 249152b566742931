"""The engine for TCP: ZeroMQ with CURVE encryption, for peers that hold the key of the run."""
