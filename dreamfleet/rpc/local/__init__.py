"""The engine for one machine: plain frames of our wire format over unix sockets, moved by the threads that call."""
