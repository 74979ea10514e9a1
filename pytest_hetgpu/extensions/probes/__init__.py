"""What a node is made of, as far as a job may care: one file a subject, one round trip for all."""
