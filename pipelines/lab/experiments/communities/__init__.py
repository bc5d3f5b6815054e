"""Experiments on communities (paper 004): ranks of a local domain, from little more than the domain."""
