// Shared by the hand-written answers of the libraries of mathematics and the generated stubs.
#pragma once

#include <stddef.h>

void* simulated_cuda_count(const char* name);
void simulated_cuda_called(void* count);
void* simulated_cuda_handle(void);

// The first line of an answer.
#define CALLED()                                             \
  static void* count;                                        \
  if (count == NULL) count = simulated_cuda_count(__func__); \
  simulated_cuda_called(count)
