#include <cublasLt.h>
#include <string.h>

#include "answers.h"

size_t cublasLtGetVersion(void) { return 130000; }
// One algorithm that needs no workspace.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  CALLED();
  (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)wanted;
  memset(results, 0, sizeof *results);
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}
