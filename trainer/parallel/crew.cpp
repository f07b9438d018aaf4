#include "trainer/parallel/crew.hpp"

namespace trainer {

Crew::Crew(int size) : start_(size + 1), end_(size + 1) {
  for (int number = 0; number < size; ++number) threads_.emplace_back(&Crew::serve, this, number);
}

Crew::~Crew() {
  work_ = nullptr;
  start_.arrive_and_wait();
  for (auto& thread : threads_) thread.join();
}

void Crew::run(const std::function<void(int)>& work) {
  work_ = &work;
  start_.arrive_and_wait();
  end_.arrive_and_wait();
}

void Crew::serve(int number) {
  for (;;) {
    start_.arrive_and_wait();
    if (!work_) return;
    (*work_)(number);
    end_.arrive_and_wait();
  }
}

}  // namespace trainer
