"""The machine: BLAS threads, hardware, the compilation cache, and several processes as one job."""
