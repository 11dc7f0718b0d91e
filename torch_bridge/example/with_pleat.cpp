// The same training with Pleat switched on by hand. Usage: train_with_pleat [steps] [options of
// Pleat]
#include <pleat/torch.h>

#include <cstdlib>
#include <iostream>
#include <stdexcept>

#include "training.h"

int main(int argc, char** argv) {
  try {
    pleat::enable(argc > 2 ? argv[2] : "bits:4");
  } catch (const std::runtime_error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  train(argc > 1 ? std::atoi(argv[1]) : 50);
  std::cerr << pleat::report();
}
