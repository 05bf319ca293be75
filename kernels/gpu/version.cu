// Asked by the build: what nvcc this is.
#if !defined(__CUDACC_VER_MAJOR__) || __CUDACC_VER_MAJOR__ < 12
#error "octet needs nvcc 12 or newer"
#endif
octet_nvcc_major=__CUDACC_VER_MAJOR__;
