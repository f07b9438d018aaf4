// SIGTERM and SIGUSR1 ask the run to save and end; the ranks agree on the step. Other signals keep their
// meaning.
#pragma once

namespace trainer {

void heed_stop_signals();
int stop_signal();  // the number of the one that came, 0: none

}  // namespace trainer
