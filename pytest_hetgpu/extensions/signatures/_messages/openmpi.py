"""First lines of help texts of the Open MPI library that need no second line; their files stand above each group."""

from __future__ import annotations

# ompi/runtime/help-mpi-runtime.txt, ompi/mpi/help-mpi-api.txt, ompi/communicator/help-comm.txt
WRONG_USE = (
    "this process has attempted to initialize",
    "The function MPI_FINALIZE was invoked",
    "Your application has invoked an MPI function that is not supported",
    "Detected mismatched split_type",
    "Detected an unexpected split type",
    "This installation of Open MPI was configured without support for",
    "The user has called an operation involving MPI_Connect and/or MPI_Accept",
    "Open MPI intercepted a call to free memory that is still being used",
    "The user requested CUDA support with the --mca mpi_cuda_support 1 flag",
)
# ompi/mca/mtl/*/help-mtl-*.txt, opal/mca/accelerator/base/help-accelerator-base.txt, ompi/mca/osc/pt2pt, hook and coll
LACKING = (
    "PSM2 was unable to open an endpoint",
    "PSM was unable to open an endpoint",
    "Initialization of PSM2 library failed",
    "Initialization of PSM library failed",
    "does not have enough free bits in its tag to fit the MPI",
    "Scalable Endpoint feature is enabled by the user but it is not supported",
    "Number of local ranks exceed the number of available OFI contexts",
    "The OFI MTL was not able to find endpoint information",
    "ERROR: Open MPI only supports one accelerator framework per node",
    "ERROR: User specified an accelerator component",
    "The OSC pt2pt component does not support MPI_THREAD_MULTIPLE",
    "Error: A request was made to exclude a hook component",
    "Although some coll components are available on your system, none of",
    "ERROR: Linux kernel CMA support was requested",
)
# opal/mca/btl/openib/help-mpi-btl-openib.txt: the fabric gave up
FABRIC = (
    "The InfiniBand retry count between two MPI processes has been",
    'The OpenFabrics "receiver not ready" retry count on a',
    "The OpenFabrics driver in Open MPI tried to raise a fatal error",
)
# opal/mca/btl/tcp/help-mpi-btl-tcp.txt: a run may survive these
TCP_WARNINGS = (
    "WARNING: Open MPI failed to handshake with a connecting peer",
    "WARNING: The accept(3) system call failed on a TCP socket",
    "WARNING: Open MPI failed to get or set flags on a TCP socket",
    "WARNING: Open MPI accepted a TCP connection from what appears to be",
    "Open MPI detected an inbound MPI TCP connection request from a peer",
    "The OpenFabrics stack has reported a",
)
