"""The objects that Kubernetes makes the pods of a placement from: a file for each kind. Pure."""
