// The training that both programs of this example run. No torch in this header: it takes long to
// compile, and the programs need none of it.
#pragma once

// Trains a small network on a function of two variables and prints one line: the last loss, the
// peak memory above what the model and the optimizer take, and in how many of the backward calls of
// the custom function autograd handed out the very parameter that was saved.
void train(int steps);
