// cuDNN for programs that need no values: one engine with a workspace, sizes of a page.
#include <cudnn.h>
#include <string.h>

#include "answers.h"

enum { kSize = 4096, kWorkspace = 1 << 20 };

size_t cudnnGetVersion(void) { return 91900; }
size_t cudnnGetCudartVersion(void) { return 13000; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status != 0 ? "simulated error" : "no error";
}
void cudnnGetLastErrorString(char* message, size_t bytes) {
  if (bytes != 0) message[0] = 0;
}
cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int* value) {
  *value = type == MAJOR_VERSION ? 9 : type == MINOR_VERSION ? 19 : 0;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  CALLED();
  (void)handle;
  *stream = NULL;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  CALLED();
  (void)type;
  *descriptor = simulated_cuda_handle();
  return CUDNN_STATUS_SUCCESS;
}

static size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT32:
    case CUDNN_TYPE_FLOAT:
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_BEHAVIOR_NOTE:
    case CUDNN_TYPE_NUMERICAL_NOTE:
    case CUDNN_TYPE_KNOB_TYPE:
    case CUDNN_TYPE_HEUR_MODE:
      return 4;
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    default:
      return 8;
  }
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted,
                                       int64_t* found, void* elements) {
  CALLED();
  (void)descriptor;
  const int none = name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE ||
                   name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE || name == CUDNN_ATTR_ENGINE_KNOB_INFO;
  const int lives_elsewhere = type == CUDNN_TYPE_BACKEND_DESCRIPTOR;  // the caller has made it
  if (found != NULL)
    *found = none ? 0 : name == CUDNN_ATTR_ENGINEHEUR_RESULTS || !lives_elsewhere || wanted > 0;
  if (none || lives_elsewhere || elements == NULL || wanted <= 0) return CUDNN_STATUS_SUCCESS;
  memset(elements, 0, bytes_of(type));
  if (name == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE ||
      name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
    *(int64_t*)elements = kWorkspace;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t* bytes) {
  CALLED();
  (void)handle;
  *bytes = kSize;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops,
    const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t z,
    const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t scale,
    const cudnnActivationDescriptor_t activation, size_t* bytes) {
  CALLED();
  (void)handle, (void)mode, (void)ops, (void)x, (void)z, (void)y, (void)scale, (void)activation;
  *bytes = kSize;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops,
    const cudnnActivationDescriptor_t activation, const cudnnTensorDescriptor_t x, size_t* bytes) {
  CALLED();
  (void)handle, (void)mode, (void)ops, (void)activation, (void)x;
  *bytes = kSize;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops,
    const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t y,
    const cudnnTensorDescriptor_t dy, const cudnnTensorDescriptor_t dz,
    const cudnnTensorDescriptor_t dx, const cudnnTensorDescriptor_t scale,
    const cudnnActivationDescriptor_t activation, size_t* bytes) {
  CALLED();
  (void)handle, (void)mode, (void)ops, (void)x, (void)y, (void)dy, (void)dz, (void)dx, (void)scale,
      (void)activation;
  *bytes = kSize;
  return CUDNN_STATUS_SUCCESS;
}
