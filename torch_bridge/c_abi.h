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

/* --- traces --------------------------------------------------------------------------------------
 * The bridge tells, libpleat_recorder.so (interpose/) writes. It lies beside the bridge and is
 * opened when a trace is asked for. docs/trace_format.md says what the members of an event mean. */
#define PLEAT_RECORDER_FILE "libpleat_recorder.so"
#define PLEAT_RECORDER_VERSION 2u

/* What happened. The numbers stand in files: none is ever given another meaning. Those below 64 are
 * events of an allocator, whose changes add up; the others are marks. */
typedef enum PleatTraceKind {
  PLEAT_TRACE_SEGMENT_RESERVE = 1,
  PLEAT_TRACE_SEGMENT_RELEASE = 2,
  PLEAT_TRACE_PAGES_RELEASE = 3,
  PLEAT_TRACE_ALLOCATE = 4,
  PLEAT_TRACE_FREE = 5,
  PLEAT_TRACE_SHRINK = 6,
  PLEAT_TRACE_CHUNK_ALLOCATE = 7,
  PLEAT_TRACE_CHUNK_FREE = 8,
  PLEAT_TRACE_PAYLOAD_ALLOCATE = 9,
  PLEAT_TRACE_PAYLOAD_SHRINK = 10,
  PLEAT_TRACE_PAYLOAD_FREE = 11,
  PLEAT_TRACE_TAG = 12,
  PLEAT_TRACE_RELEASE = 13,
  PLEAT_TRACE_WAIT = 14,
  PLEAT_TRACE_HOLD = 15,
  PLEAT_TRACE_KEEP = 16,
  PLEAT_TRACE_ENCODE = 17,
  PLEAT_TRACE_RESTORE = 18,
  PLEAT_TRACE_RESTORED_FREE = 19,
  PLEAT_TRACE_DROP = 20,
  PLEAT_TRACE_OUT_OF_MEMORY = 21,
  PLEAT_TRACE_OTHER = 22,
  PLEAT_TRACE_PAGES_TOUCH = 23,
  PLEAT_TRACE_PAGES_MOVE = 24,
  PLEAT_TRACE_PHASE = 64,    /* the thread begins `phase`; `bytes` is the number of the step */
  PLEAT_TRACE_NODE = 65,     /* forward recorded `node` in `op` at `stack` */
  PLEAT_TRACE_LABEL = 66,    /* `block` is a PleatTraceLabel, `reason` */
  PLEAT_TRACE_PRESENT = 67,  /* what a device had when the trace began: `change` */
  PLEAT_TRACE_DECIDED = 68,  /* how `record` is to be coded, again once its payload has another
                                width: `op` is the trail, as in docs/trace_format.md, `reason` is the
                                bits of an element, `stream` the bits that it needs however few
                                are asked for, `key` the elements that may bear noise */
  PLEAT_TRACE_DUMP = 69,     /* somebody asks for a closer look at this moment */
  PLEAT_TRACE_PLAN = 70,     /* what `record` would become if anything were coded: `reason` is a
                                PleatTracePlan, `key` the bytes of its payload */
  PLEAT_TRACE_MODULE = 71,   /* the thread enters the module whose path is `op`, or is back in it;
                                `bytes` modules deep. 0: it is in none */
  PLEAT_TRACE_LEFT = 72,     /* a tensor is saved that gets no record: `op` says why */
  PLEAT_TRACE_PROVED = 73,   /* a save of `record` may bear noise: `op` is the node that shows it */
  PLEAT_TRACE_RESIDENT = 96, /* by the recorder: `bytes` of the process are resident */
  PLEAT_TRACE_SMALL = 97,    /* by the recorder: `bytes` of tensors that are too small for Pleat
                                live, `block` of them; `record` bytes and `node` tensors in all */
  PLEAT_TRACE_LOST = 98      /* by the recorder: no room for `bytes` events before this one */
} PleatTraceKind;

typedef enum PleatTracePhase {
  PLEAT_TRACE_PHASE_OTHER = 0, /* nothing of training is known of the thread */
  PLEAT_TRACE_PHASE_FORWARD = 1,
  PLEAT_TRACE_PHASE_BACKWARD = 2,
  PLEAT_TRACE_PHASE_OPTIMIZER = 3,
  PLEAT_TRACE_PHASE_BETWEEN = 4, /* after backward, before the optimizer */
  PLEAT_TRACE_PHASE_DATA = 5     /* after the optimizer, before forward */
} PleatTracePhase;

typedef enum PleatTraceLabel {
  PLEAT_TRACE_LABEL_PARAMETER = 1,
  PLEAT_TRACE_LABEL_GRADIENT = 2
} PleatTraceLabel;

typedef enum PleatTracePlan {
  PLEAT_TRACE_PLAN_CODED = 0,
  PLEAT_TRACE_PLAN_RECOMPUTED = 1, /* from the payload of another record: it needs none */
  PLEAT_TRACE_PLAN_RAW = 2         /* it has no shorter form */
} PleatTracePlan;

/* The place of a payload: the `reason` of ENCODE. */
typedef enum PleatTracePlace {
  PLEAT_TRACE_PLACE_NONE = 0, /* the payload has no bytes */
  PLEAT_TRACE_PLACE_CHUNK = 1,
  PLEAT_TRACE_PLACE_OWN_BLOCK = 2,
  PLEAT_TRACE_PLACE_IN_PLACE = 3 /* in the block that it was encoded from */
} PleatTracePlace;

/* The kinds of statistics whose changes an event carries. */
typedef enum PleatTraceChange {
  PLEAT_TRACE_REQUESTED = 0,
  PLEAT_TRACE_ACTIVE = 1,
  PLEAT_TRACE_RESERVED = 2,
  PLEAT_TRACE_SAVED_RAW = 3,
  PLEAT_TRACE_PAYLOAD = 4,
  PLEAT_TRACE_RESTORED = 5,
  PLEAT_TRACE_CHANGES = 6
} PleatTraceChange;

typedef struct PleatTraceEvent {
  uint64_t time_ns; /* CLOCK_MONOTONIC */
  uint64_t address; /* in files: minus a random base of the process; 0: none */
  uint64_t bytes;
  uint64_t block;  /* unique on its device; 0: none */
  uint64_t record; /* the same; of a payload's room: the record whose payload goes there */
  uint64_t node;   /* forward thread << 48 | sequence number + 1; 0: none */
  uint64_t key;    /* of a tag: the saved tensor across steps */
  uint64_t stream;
  int64_t change[PLEAT_TRACE_CHANGES];
  uint32_t op;     /* a string; 0: none */
  uint32_t stack;  /* 0: none */
  uint32_t thread; /* by the recorder: the system's number of the thread */
  int8_t device;   /* -1: the host */
  uint8_t kind, phase, reason;
} PleatTraceEvent;

typedef enum PleatTraceStacks {
  PLEAT_TRACE_STACKS_NONE = 0,
  PLEAT_TRACE_STACKS_PYTHON = 1,
  PLEAT_TRACE_STACKS_NATIVE = 2,
  PLEAT_TRACE_STACKS_BOTH = 3
} PleatTraceStacks;

typedef struct PleatTraceRequest {
  uint32_t struct_size;
  uint32_t stacks;     /* a PleatTraceStacks */
  const char* path;    /* of the file, which must not exist; absolute */
  const char* process; /* a JSON object of what is to be known of the process */
  uint64_t most_bytes; /* of the file and the part before it; 0: any number */
} PleatTraceRequest;

/* What the recorder does for the bridge. Every function may be called from any thread, with no lock
 * held that a thread may hold while it waits for the interpreter's; all keep errno. */
typedef struct PleatRecorder {
  uint32_t version;
  uint32_t struct_size;
  /* Creates the file. 0: done; not 0: there is no trace, and `error` holds one line. */
  int (*start)(const PleatTraceRequest* request, char* error, size_t error_bytes);
  /* Writes what is left, closes the file. Returns the events that were written. No thread is in one
   * of the functions below, nor will be. */
  uint64_t (*stop)(void);
  /* The id of a text; 0 if there is no room for it. */
  uint32_t (*intern)(const char* text, size_t bytes);
  /* The present stack of this thread; 0: there is none. `may_wait`: for the interpreter's lock. */
  uint32_t (*stack)(int may_wait);
  /* Writes the event down. Sets `thread`. Async-signal-safe. */
  void (*event)(const PleatTraceEvent* event);
  /* A tensor beside Pleat's memory came (bytes > 0) or went (< 0). */
  void (*small)(int64_t bytes);
  /* In a forked child: nothing more is written, whatever is called. */
  void (*abandon)(void);
  /* Writes a page to stderr: who holds the memory, by class and by line, as of all events that this
   * thread has seen. `title` stands in its first line. Waits for the writer's thread, a second at
   * most. Needs no memory of the job's. */
  void (*page)(const char* title);
  /* Own costs so far: nanoseconds of processor time of the writer's thread; bytes in the file. */
  void (*cost)(uint64_t* writer_ns, uint64_t* file_bytes);
} PleatRecorder;

/* Exported by the recorder. Null: it is of another version. */
const PleatRecorder* pleat_recorder(uint32_t version) PLEAT_NOEXCEPT;
typedef const PleatRecorder* (*pleat_recorder_fn)(uint32_t);

/* For the Python package: see pleat.trace there. 0: done; not 0: `error` holds one line. */
int pleat_trace_start(const char* path, char* error, size_t error_bytes) PLEAT_NOEXCEPT;
/* Ends the trace, if there is one. Returns 1 if there was. */
int pleat_trace_stop(void) PLEAT_NOEXCEPT;
/* Says on stderr who holds the memory, and puts a mark into the trace, if there is one. `title`
 * stands in the first line; null: one of ours. Any thread. */
void pleat_trace_dump(const char* title) PLEAT_NOEXCEPT;
/* The path of the trace that is being written; same convention as pleat_stats_json. */
size_t pleat_trace_path(char* buffer, size_t buffer_bytes) PLEAT_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
