#include <cublas_v2.h>

#include "answers.h"

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  CALLED();
  (void)handle;
  *mode = CUBLAS_DEFAULT_MATH;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  CALLED();
  (void)handle;
  *mode = CUBLAS_POINTER_MODE_HOST;
  return CUBLAS_STATUS_SUCCESS;
}
