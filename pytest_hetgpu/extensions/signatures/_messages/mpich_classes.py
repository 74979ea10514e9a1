"""Texts of MPICH for the error classes of MPI (src/mpi/errhan/baseerrnames.txt and errnames.txt)."""

from __future__ import annotations

_CLASSES = {
    "Invalid buffer pointer": "MPI_ERR_BUFFER",
    "Invalid count": "MPI_ERR_COUNT",
    "Invalid datatype": "MPI_ERR_TYPE",
    "Invalid tag": "MPI_ERR_TAG",
    "Invalid communicator": "MPI_ERR_COMM",
    "Invalid rank": "MPI_ERR_RANK",
    "Invalid root": "MPI_ERR_ROOT",
    "Message truncated": "MPI_ERR_TRUNCATE",
    "Invalid group": "MPI_ERR_GROUP",
    "Invalid MPI_Op": "MPI_ERR_OP",
    "Invalid MPI_Request": "MPI_ERR_REQUEST",
    "Invalid topology": "MPI_ERR_TOPOLOGY",
    "Invalid dimension argument": "MPI_ERR_DIMS",
    "Invalid argument": "MPI_ERR_ARG",
    "Other MPI error": "MPI_ERR_OTHER",
    "Unknown error": "MPI_ERR_UNKNOWN",
    "Unknown error class": "MPI_ERR_UNKNOWN",
    "Unknown error.  Please file a bug report.": "MPI_ERR_UNKNOWN",
    "Internal MPI error!": "MPI_ERR_INTERN",
    "See the MPI_ERROR field in MPI_Status for the error code": "MPI_ERR_IN_STATUS",
    "Pending request (no error)": "MPI_ERR_PENDING",
    "Request pending due to failure": "MPI_ERR_PROC_FAILED_PENDING",
    "Invalid MPI_File": "MPI_ERR_FILE",
    "Access denied to file": "MPI_ERR_ACCESS",
    "Invalid amode value in MPI_File_open": "MPI_ERR_AMODE",
    "Invalid file name": "MPI_ERR_BAD_FILE",
    "File exists": "MPI_ERR_FILE_EXISTS",
    "File in use by some process": "MPI_ERR_FILE_IN_USE",
    "Not enough space for file": "MPI_ERR_NO_SPACE",
    "File does not exist": "MPI_ERR_NO_SUCH_FILE",
    "Other I/O error": "MPI_ERR_IO",
    "Read-only file or filesystem name": "MPI_ERR_READ_ONLY",
    "An error occurred in a user-defined data conversion function": "MPI_ERR_CONVERSION",
    "Unsupported datarep passed to MPI_File_set_view": "MPI_ERR_UNSUPPORTED_DATAREP",
    "Invalid MPI_Info": "MPI_ERR_INFO",
    "Invalid key for MPI_Info": "MPI_ERR_INFO_KEY",
    "Invalid MPI_Info value": "MPI_ERR_INFO_VALUE",
    "MPI_Info key is not defined": "MPI_ERR_INFO_NOKEY",
    "Invalid service name (see MPI_Publish_name)": "MPI_ERR_NAME",
    "Unable to allocate memory for MPI_Alloc_mem": "MPI_ERR_NO_MEM",
    "Inconsistent arguments to collective routine": "MPI_ERR_NOT_SAME",
    "Invalid port": "MPI_ERR_PORT",
    "Quota exceeded for files": "MPI_ERR_QUOTA",
    "Attempt to lookup an unknown service name": "MPI_ERR_SERVICE",
    "Error in spawn call": "MPI_ERR_SPAWN",
    "Unsupported file operation": "MPI_ERR_UNSUPPORTED_OPERATION",
    "Invalid MPI_Win": "MPI_ERR_WIN",
    "Invalid base address": "MPI_ERR_BASE",
    "Invalid locktype argument": "MPI_ERR_LOCKTYPE",
    "Invalid keyval": "MPI_ERR_KEYVAL",
    "Conflicting accesses to window": "MPI_ERR_RMA_CONFLICT",
    "Wrong synchronization of RMA calls": "MPI_ERR_RMA_SYNC",
    "Invalid size argument in RMA call": "MPI_ERR_SIZE",
    "Invalid displacement argument in RMA call": "MPI_ERR_DISP",
    "Invalid assert argument": "MPI_ERR_ASSERT",
    "Process failed": "MPI_ERR_PROC_FAILED",
    "Process was aborted": "MPI_ERR_PROC_ABORTED",
    "Target memory is not contained within the window": "MPI_ERR_RMA_RANGE",
    "Memory cannot be attached": "MPI_ERR_RMA_ATTACH",
    "Memory cannot be shared": "MPI_ERR_RMA_SHARED",
    "Incorrect window flavor": "MPI_ERR_RMA_FLAVOR",
    "Communication object revoked": "MPI_ERR_REVOKED",
    "Invalid MPI_Session handle": "MPI_ERR_SESSION",
    "Value is too large to store": "MPI_ERR_VALUE_TOO_LARGE",
    "Invalid errhandler": "MPI_ERR_ERRHANDLER",
}
UNSPECIFIC = ("MPI_ERR_OTHER", "MPI_ERR_UNKNOWN", "MPI_ERR_INTERN", "MPI_ERR_IN_STATUS")
"""Classes whose cause only the stack holds."""

OTHERS_DEATH = ("MPI_ERR_PROC_FAILED", "MPI_ERR_PROC_FAILED_PENDING", "MPI_ERR_PROC_ABORTED", "MPI_ERR_REVOKED")
"""Classes that a rank gets for another rank's death."""
NO_MEMORY = "MPI_ERR_NO_MEM"


def error_class(words: str) -> str | None:
    """Return the class's name in the standard, which Open MPI prints; None for a text that is no class."""
    return _CLASSES.get(words.strip())
