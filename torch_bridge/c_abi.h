/* The C ABI between the preload library (interpose/), the bridge (torch_bridge/) and the Python
 * package. No torch type, no C++ type, no exception crosses it. Every struct starts with the ABI
 * version and its own size; a mismatch means "stay out". */
#ifndef PLEAT_TORCH_BRIDGE_C_ABI_H
#define PLEAT_TORCH_BRIDGE_C_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define PLEAT_NOEXCEPT noexcept
#else
#define PLEAT_NOEXCEPT
#endif

#define PLEAT_ABI_VERSION 3u

/* File name of the bridge for torch MAJOR.MINOR, in the directory of libpleat.so. */
#define PLEAT_BRIDGE_FILE_FORMAT "libpleat_bridge_torch%u.%u.so"

/* The mangled names libpleat.so interposes (torch 2.11 .. 2.15, Itanium ABI). */
#define PLEAT_SYMBOL_SET_ENGINE_STUB "_ZN5torch8autograd23set_default_engine_stubEPFRNS0_6EngineEvE"
#define PLEAT_SYMBOL_ENGINE_EXECUTE                                                               \
  "_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_EEbbb" \
  "S7_"
#define PLEAT_SYMBOL_SAVED_VARIABLE "_ZN5torch8autograd13SavedVariableC1ERKN2at6TensorEbb"
#define PLEAT_SYMBOL_REGISTER_HOOKS                                        \
  "_ZN5torch8autograd13SavedVariable14register_hooksEOSt10unique_ptrINS0_" \
  "18SavedVariableHooksESt14"                                              \
  "default_deleteIS3_EE"
#define PLEAT_SYMBOL_UNPACK "_ZNK5torch8autograd13SavedVariable6unpackESt10shared_ptrINS0_4NodeEE"
#define PLEAT_SYMBOL_UNPACK_INTRUSIVE /* where a node is held by c10::intrusive_ptr (2.15) */ \
  "_ZNK5torch8autograd13SavedVariable6unpackEN3c1013intrusive_ptrINS0_4NodeENS2_"             \
  "6detail34intrusive"                                                                        \
  "_target_default_null_typeIS4_EEEE"
#define PLEAT_SYMBOL_SET_GRADIENT_EDGE \
  "_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE"
#define PLEAT_SYMBOL_POW "_ZN2at4_ops17pow_Tensor_Scalar4callERKNS_6TensorERKN3c106ScalarE"
#define PLEAT_SYMBOL_POW_INPLACE "_ZN2at4_ops11pow__Scalar4callERNS_6TensorERKN3c106ScalarE"

/* Of the operators of enum PleatGradient, in its order. */
#define PLEAT_SYMBOL_GELU_BACKWARD   \
  "_ZN2at4_ops13gelu_backward4callE" \
  "RKNS_6TensorES4_St17basic_string_viewIcSt11char_traitsIcEE"
#define PLEAT_SYMBOL_SILU_BACKWARD "_ZN2at4_ops13silu_backward4callERKNS_6TensorES4_"
#define PLEAT_SYMBOL_THRESHOLD_BACKWARD   \
  "_ZN2at4_ops18threshold_backward4callE" \
  "RKNS_6TensorES4_RKN3c106ScalarE"
#define PLEAT_SYMBOL_SIGMOID_BACKWARD "_ZN2at4_ops16sigmoid_backward4callERKNS_6TensorES4_"
#define PLEAT_SYMBOL_TANH_BACKWARD "_ZN2at4_ops13tanh_backward4callERKNS_6TensorES4_"
#define PLEAT_SYMBOL_LEAKY_RELU_BACKWARD   \
  "_ZN2at4_ops19leaky_relu_backward4callE" \
  "RKNS_6TensorES4_RKN3c106ScalarEb"
#define PLEAT_SYMBOL_HARDTANH_BACKWARD   \
  "_ZN2at4_ops17hardtanh_backward4callE" \
  "RKNS_6TensorES4_RKN3c106ScalarES8_"
#define PLEAT_SYMBOL_ELU_BACKWARD   \
  "_ZN2at4_ops12elu_backward4callE" \
  "RKNS_6TensorERKN3c106ScalarES8_S8_bS4_"
#define PLEAT_SYMBOL_SOFTMAX_BACKWARD         \
  "_ZN2at4_ops22_softmax_backward_data4callE" \
  "RKNS_6TensorES4_lN3c1010ScalarTypeE"
#define PLEAT_SYMBOL_LOG_SOFTMAX_BACKWARD         \
  "_ZN2at4_ops26_log_softmax_backward_data4callE" \
  "RKNS_6TensorES4_lN3c1010ScalarTypeE"
#define PLEAT_SYMBOL_MUL "_ZN2at4_ops10mul_Tensor4callERKNS_6TensorES4_"
#define PLEAT_SYMBOL_DIV "_ZN2at4_ops10div_Tensor4callERKNS_6TensorES4_"

/* Operators with which autograd works out a gradient from another (in_place_gradient.h). */
typedef enum PleatGradient {
  PLEAT_GELU_BACKWARD,
  PLEAT_SILU_BACKWARD,
  PLEAT_THRESHOLD_BACKWARD,
  PLEAT_SIGMOID_BACKWARD,
  PLEAT_TANH_BACKWARD,
  PLEAT_LEAKY_RELU_BACKWARD,
  PLEAT_HARDTANH_BACKWARD,
  PLEAT_ELU_BACKWARD,
  PLEAT_SOFTMAX_BACKWARD,
  PLEAT_LOG_SOFTMAX_BACKWARD,
  PLEAT_MUL,
  PLEAT_DIV,
  PLEAT_GRADIENTS
} PleatGradient;

/* What the caller of pleat_bridge_install has found. All pointers are the real functions of the
 * loaded libtorch_cpu.so; NULL where there is none. */
typedef struct PleatHostFunctions {
  uint32_t abi_version;
  uint32_t struct_size;
  /* The engine stub libtorch_python is about to install; NULL: take the current default engine
   * (LibTorch programs, late installation from Python). */
  void* engine_stub;
  void* set_default_engine_stub;
  void* engine_execute;
  void* saved_variable_constructor;
  void* saved_variable_register_hooks;
  void* saved_variable_unpack; /* by whichever of its two names */
  void* set_gradient_edge;
  void* pow; /* at::pow(Tensor, Scalar), and in place */
  void* pow_inplace;
  void* gradients[PLEAT_GRADIENTS];
  /* 1: calls of the functions from engine_execute on reach the bridge through the preload library;
   * 0: they do not (installed without LD_PRELOAD). */
  uint32_t interposed;
  uint32_t reserved;
} PleatHostFunctions;

/* What the bridge gives back: what to hand to the real set_default_engine_stub, and the functions
 * the preload library's jump slots shall point to (NULL: leave the real one). */
typedef struct PleatBridgeFunctions {
  uint32_t abi_version;
  uint32_t struct_size;
  void* engine_stub;
  void* engine_execute;
  void* saved_variable_constructor;
  void* saved_variable_register_hooks;
  void* saved_variable_unpack;
  void* set_gradient_edge;
  void* pow;
  void* pow_inplace;
  void* gradients[PLEAT_GRADIENTS];
} PleatBridgeFunctions;

/* Exported by the bridge. 0: installed, `functions` filled (a second call fills it again and
 * changes nothing else). Not 0: the bridge stays out, said why in one line on stderr if that is
 * news, and the caller goes on as if it had never been loaded. Reads PLEAT_CONF. */
int pleat_bridge_install(const PleatHostFunctions* host,
                         PleatBridgeFunctions* functions) PLEAT_NOEXCEPT;
typedef int (*pleat_bridge_install_fn)(const PleatHostFunctions*, PleatBridgeFunctions*);

/* "2.11.0+cu130": the torch this bridge was built for. */
const char* pleat_bridge_built_for(void) PLEAT_NOEXCEPT;

/* For the Python package and LibTorch programs; any thread. */
int pleat_is_installed(void) PLEAT_NOEXCEPT;
/* Applies options in PLEAT_CONF's grammar on top of the ones in force, and turns tagging on. 0:
 * done; not 0: nothing changed, `error` (may be NULL) holds one line. */
int pleat_enable(const char* conf, char* error, size_t error_bytes) PLEAT_NOEXCEPT;
/* No further tensor is tagged; what is packed stays readable. */
void pleat_disable(void) PLEAT_NOEXCEPT;
int pleat_is_enabled(void) PLEAT_NOEXCEPT;
/* JSON object of all counters into `buffer` (NUL-terminated if buffer_bytes > 0); returns the bytes
 * needed without the NUL, so a second call with a larger buffer gets all of it. */
size_t pleat_stats_json(char* buffer, size_t buffer_bytes) PLEAT_NOEXCEPT;
/* The report of `verbose:1` as text, same convention. */
size_t pleat_report_text(char* buffer, size_t buffer_bytes) PLEAT_NOEXCEPT;
/* Restarts every peak from the present. */
void pleat_reset_peaks(void) PLEAT_NOEXCEPT;
/* Nested, per thread: between the two no tensor of this thread is tagged. */
void pleat_exempt_enter(void) PLEAT_NOEXCEPT;
void pleat_exempt_exit(void) PLEAT_NOEXCEPT;

/* Installation after torch is up, without the preload library (Python's entry point, LibTorch
 * programs): wraps the engine in force. Object identity of saved parameters and a user's own
 * register_hooks need the preload library. 0: installed or already installed. */
int pleat_install_late(void) PLEAT_NOEXCEPT;
/* Around an outermost backward pass, where Engine::execute is not interposed. */
void pleat_backward_enter(void) PLEAT_NOEXCEPT;
void pleat_backward_exit(void) PLEAT_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
