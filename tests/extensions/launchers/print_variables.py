"""A rank that prints the variables named on its command line."""

import importlib
import json
import os
import sys

COMM = importlib.import_module("mpi4py.MPI").COMM_WORLD
FOUND = {name: os.environ[name] for name in sys.argv[1:] if name in os.environ}
LINE = json.dumps({"rank": COMM.Get_rank(), "size": COMM.Get_size(), "variables": FOUND})
COMM.Barrier()
os.write(1, f"\nVARIABLES {LINE}\n".encode())
