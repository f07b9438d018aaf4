// Opens one shared object that describes itself by a function; what module.hpp does for both of its own.
#pragma once

#include <string>

#include "trainer/module/module.hpp"

namespace trainer {

// The address of `function` in the file, which stays open. The Error names the file and the loader's reason.
Result<void*> function_in(const std::string& path, const char* function);

// `Module` is HostModule or CudaModule; one that is of another build is refused.
template <class Module>
Result<const Module*> open_module(const std::string& path, const char* function) {
  auto address = function_in(path, function);
  if (!address) return address.error();
  const Module* module = reinterpret_cast<const Module* (*)()>(*address)();
  if (std::string(module->build) == kModuleBuild) return module;
  return Error{Errc::failed,
               "'" + path + "' is of build '" + module->build + "', the program of '" + kModuleBuild + "'",
               "program and modules are installed together"};
}

}  // namespace trainer
