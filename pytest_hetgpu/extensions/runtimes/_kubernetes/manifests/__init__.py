"""The objects from which Kubernetes makes the pods of a placement: one file per kind. Pure."""
