"""The machine: BLAS threads, hardware, compiled programs kept between runs, several processes as one job."""
