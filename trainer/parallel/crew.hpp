// A few threads that do the same work side by side, each for its own number, and meet after it: one for each
// device of a process.
#pragma once

#include <barrier>
#include <functional>
#include <thread>
#include <vector>

namespace trainer {

class Crew {
 public:
  explicit Crew(int size);
  ~Crew();

  // work(0) … work(size - 1), each in its thread; returns when all are done.
  void run(const std::function<void(int)>& work);

 private:
  void serve(int number);

  std::barrier<> start_;
  std::barrier<> end_;
  const std::function<void(int)>* work_ = nullptr;  // none: end
  std::vector<std::thread> threads_;
};

}  // namespace trainer
