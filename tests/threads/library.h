// What those files share whose definitions take the place of a library's.
#ifndef TESTS_THREADS_LIBRARY_H_
#define TESTS_THREADS_LIBRARY_H_

#include <dlfcn.h>

#include <cstdlib>

extern "C" void AnnotateIgnoreWritesBegin(const char* file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char* file, int line);

namespace snug::threads {

// The library's function of that name, mangled. Of each file its own, and without a string: what is
// compiled without the sanitizer would be taken for all of a program's.
template <typename Function>
static Function* Library(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function*>(found);
}

}  // namespace snug::threads

#endif  // TESTS_THREADS_LIBRARY_H_
