# train_cuda.so: the CUDA device and NCCL. Built where nvcc, the CUDA toolkit (12 or newer) and NCCL are found; a
# line says what is missing otherwise. No part of it links the driver, so it loads on machines without one.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(DLAUNCH_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(DLAUNCH_NVCC)
    set(CMAKE_CUDA_COMPILER ${DLAUNCH_NVCC})
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  # Code for two generations; on newer GPUs the driver compiles the PTX that 90 leaves as well.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "train_cuda.so is not built: no working nvcc (looked in PATH, CUDACXX, CUDA_HOME and /usr/local/cuda)")
  return()
endif()
if(CMAKE_VERSION VERSION_LESS 3.26)  # it does not know that nvcc speaks C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
if(DLAUNCH_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)
find_package(CUDAToolkit 12 QUIET)
if(NOT CUDAToolkit_FOUND OR NOT TARGET CUDA::cublas)
  message(STATUS "train_cuda.so is not built: no CUDA toolkit of version 12 or newer with cuBLAS")
  return()
endif()
find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV NCCL_HOME PATH_SUFFIXES include)
find_library(NCCL NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR} ENV NCCL_HOME PATH_SUFFIXES lib)
if(NOT NCCL_INCLUDE OR NOT NCCL)
  message(STATUS "train_cuda.so is not built: no NCCL (nccl.h and libnccl.so.2; NCCL_HOME tells where)")
  return()
endif()

# nvcc takes the project's warnings only by way of the host's compiler, and its own output is not pedantic.
add_library(train_cuda_kernels OBJECT ${CMAKE_CURRENT_LIST_DIR}/device/cuda/operations.cu)
set_target_properties(train_cuda_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON CUDA_VISIBILITY_PRESET hidden
  CUDA_RUNTIME_LIBRARY Shared)
target_include_directories(train_cuda_kernels PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(train_cuda_kernels PRIVATE Boost::headers)
# No fused multiply-add where the source has none: the CPU, which checks the results, has none either.
target_compile_options(train_cuda_kernels PRIVATE -Werror=all-warnings --fmad=false
  -Xcompiler=-Wall,-Wextra,-Werror,-ffp-contract=off)

list(FILTER cuda_sources EXCLUDE REGEX "\\.cu$")
trainer_module(train_cuda ${cuda_sources} $<TARGET_OBJECTS:train_cuda_kernels>)
target_include_directories(train_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE})
target_link_libraries(train_cuda PRIVATE dlaunch_options Boost::headers CUDA::cudart CUDA::cublas ${NCCL}
  Threads::Threads)
get_filename_component(nccl_folder ${NCCL} DIRECTORY)
set(library_folders ${CUDAToolkit_LIBRARY_DIR} ${nccl_folder})
list(REMOVE_DUPLICATES library_folders)
# The same path before and after installing: otherwise CMake fills it up with empty entries, which mean the folder
# that one happens to be in.
set_target_properties(train_cuda PROPERTIES LINKER_LANGUAGE CXX CUDA_RUNTIME_LIBRARY Shared
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${library_folders}")
# RUNPATH and not RPATH: LD_LIBRARY_PATH decides first which CUDA and NCCL are used.
target_link_options(train_cuda PRIVATE -Wl,--enable-new-dtags -Wl,--no-undefined)
message(STATUS "train_cuda.so: CUDA ${CUDAToolkit_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}; NCCL in ${NCCL}")
