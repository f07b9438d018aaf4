message(STATUS "train_cuda.so is not built: no sources yet")
