"""The owner's server, and the client that modelers reach it with."""
