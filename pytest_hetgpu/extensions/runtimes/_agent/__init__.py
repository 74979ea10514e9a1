"""Nodes behind the agent, a program that starts commands on a node on behalf of this process."""
