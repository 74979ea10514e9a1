"""One MPI each: launcher, libmpi and interpreter."""
