// A LibTorch program that knows nothing of Pleat. Usage: [pleat run --] train_plain [steps]
#include <cstdlib>

#include "training.h"

int main(int argc, char** argv) { train(argc > 1 ? std::atoi(argv[1]) : 50); }
