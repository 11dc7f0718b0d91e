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

/* The functions of torch that libpleat.so interposes as jumps (torch 2.11 .. 2.15, Itanium ABI).
 * All of a hook but its implementation in the bridge is made from its row:
 *
 *   FUNCTION(member, name)    member: where the two structs below hold the function
 *   OTHER_NAME(member, name)  its name in other releases of torch; stands behind the FUNCTION row
 *   GRADIENT(formula, name)   makes PLEAT_formula of enum PleatGradient, in the order of the rows
 *
 * The other name of saved_variable_unpack is for nodes held by c10::intrusive_ptr (2.15). */
/* clang-format off */
#define PLEAT_HOOKS(FUNCTION, OTHER_NAME, GRADIENT) \
  FUNCTION(engine_execute, \
           "_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_EEbbbS7_") \
  FUNCTION(engine_queue_callback, \
           "_ZN5torch8autograd6Engine14queue_callbackESt8functionIFvvEE") \
  FUNCTION(saved_variable_constructor, "_ZN5torch8autograd13SavedVariableC1ERKN2at6TensorEbb") \
  FUNCTION(saved_variable_register_hooks, \
           "_ZN5torch8autograd13SavedVariable14register_hooksEOSt10unique_ptrINS0_18SavedVariableHooksESt14default_deleteIS3_EE") \
  FUNCTION(saved_variable_unpack, \
           "_ZNK5torch8autograd13SavedVariable6unpackESt10shared_ptrINS0_4NodeEE") \
  OTHER_NAME(saved_variable_unpack, \
             "_ZNK5torch8autograd13SavedVariable6unpackEN3c1013intrusive_ptrINS0_4NodeENS2_6detail34intrusive_target_default_null_typeIS4_EEEE") \
  FUNCTION(set_gradient_edge, \
           "_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE") \
  GRADIENT(GELU_BACKWARD, \
           "_ZN2at4_ops13gelu_backward4callERKNS_6TensorES4_St17basic_string_viewIcSt11char_traitsIcEE") \
  GRADIENT(SILU_BACKWARD, "_ZN2at4_ops13silu_backward4callERKNS_6TensorES4_") \
  GRADIENT(THRESHOLD_BACKWARD, \
           "_ZN2at4_ops18threshold_backward4callERKNS_6TensorES4_RKN3c106ScalarE") \
  GRADIENT(SIGMOID_BACKWARD, "_ZN2at4_ops16sigmoid_backward4callERKNS_6TensorES4_") \
  GRADIENT(TANH_BACKWARD, "_ZN2at4_ops13tanh_backward4callERKNS_6TensorES4_") \
  GRADIENT(LEAKY_RELU_BACKWARD, \
           "_ZN2at4_ops19leaky_relu_backward4callERKNS_6TensorES4_RKN3c106ScalarEb") \
  GRADIENT(HARDTANH_BACKWARD, \
           "_ZN2at4_ops17hardtanh_backward4callERKNS_6TensorES4_RKN3c106ScalarES8_") \
  GRADIENT(ELU_BACKWARD, "_ZN2at4_ops12elu_backward4callERKNS_6TensorERKN3c106ScalarES8_S8_bS4_") \
  GRADIENT(SOFTMAX_BACKWARD, \
           "_ZN2at4_ops22_softmax_backward_data4callERKNS_6TensorES4_lN3c1010ScalarTypeE") \
  GRADIENT(LOG_SOFTMAX_BACKWARD, \
           "_ZN2at4_ops26_log_softmax_backward_data4callERKNS_6TensorES4_lN3c1010ScalarTypeE") \
  GRADIENT(MUL, "_ZN2at4_ops10mul_Tensor4callERKNS_6TensorES4_") \
  GRADIENT(DIV, "_ZN2at4_ops10div_Tensor4callERKNS_6TensorES4_")
/* clang-format on */
#define PLEAT_NO_HOOK(member, name) /* of the rows that a use of the list passes over */

/* What libpleat.so replaces by a function of its own; through it the bridge gets in. */
#define PLEAT_SYMBOL_SET_ENGINE_STUB "_ZN5torch8autograd23set_default_engine_stubEPFRNS0_6EngineEvE"

/* Operators with which autograd works out a gradient from another (in_place_gradient.h). */
#define PLEAT_GRADIENT(formula, name) PLEAT_##formula,
typedef enum PleatGradient {
  PLEAT_HOOKS(PLEAT_NO_HOOK, PLEAT_NO_HOOK, PLEAT_GRADIENT) PLEAT_GRADIENTS
} PleatGradient;
#undef PLEAT_GRADIENT

#define PLEAT_MEMBER(member, name) void* member;

/* What the caller of pleat_bridge_install has found. All pointers are the real functions of the
 * loaded libtorch_cpu.so; NULL where there is none. */
typedef struct PleatHostFunctions {
  uint32_t abi_version;
  uint32_t struct_size;
  /* The engine stub libtorch_python is about to install; NULL: take the current default engine
   * (LibTorch programs, late installation from Python). */
  void* engine_stub;
  void* set_default_engine_stub;
  PLEAT_HOOKS(PLEAT_MEMBER, PLEAT_NO_HOOK, PLEAT_NO_HOOK)
  void* gradients[PLEAT_GRADIENTS];
  /* 1: calls of the hooked functions reach the bridge through the preload library; 0: they do not
   * (installed without LD_PRELOAD). */
  uint32_t interposed;
  uint32_t reserved;
} PleatHostFunctions;

/* What the bridge gives back: what to hand to the real set_default_engine_stub, and the functions
 * the preload library's jump slots shall point to (NULL: leave the real one). */
typedef struct PleatBridgeFunctions {
  uint32_t abi_version;
  uint32_t struct_size;
  void* engine_stub;
  PLEAT_HOOKS(PLEAT_MEMBER, PLEAT_NO_HOOK, PLEAT_NO_HOOK)
  void* gradients[PLEAT_GRADIENTS];
} PleatBridgeFunctions;
#undef PLEAT_MEMBER

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
/* The profile, as its file has it. */
size_t pleat_profile_json(char* buffer, size_t buffer_bytes) PLEAT_NOEXCEPT;
/* The report of `verbose:1` as text, same convention. */
size_t pleat_report_text(char* buffer, size_t buffer_bytes) PLEAT_NOEXCEPT;
/* Restarts every peak from the present. */
void pleat_reset_peaks(void) PLEAT_NOEXCEPT;
/* The functions whose nodes have this class in Python (`_backward_cls` of a
 * torch.autograd.Function, which the caller keeps alive for good) have a gradient that is linear in
 * what they save; `closes`: they mix many elements, like a matrix product. 0: noted; not 0: not
 * installed, or no memory. */
int pleat_trust_class(const void* python_class, int closes) PLEAT_NOEXCEPT;
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
