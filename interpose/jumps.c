/* The functions of torch that are interposed as plain jumps. Nothing of their signatures is
 * known here: an exported name is `jmp *slot`, every argument register and the stack untouched.
 * A slot starts at a resolver, so a call is right even if no bridge was ever loaded; after the
 * first call it holds the real function, after an install the bridge's. x86-64 only. */
#include "interpose/internal.h"

#ifndef __x86_64__
#error "libpleat.so is written for x86-64; CMake leaves it out elsewhere"
#endif

#define PLEAT_STRING_(x) #x
#define PLEAT_STRING(x) PLEAT_STRING_(x)

/* Naked functions hold nothing but their assembly. `symbol` is the mangled name a caller asks for.
 */
#define PLEAT_JUMP(name, symbol, number)                                                 \
  PLEAT_EXPORT __attribute__((naked)) void name(void) __asm__(symbol);                   \
  PLEAT_EXPORT __attribute__((naked)) void name(void) {                                  \
    __asm__("endbr64\n\tjmp *pleat_slots+8*" PLEAT_STRING(number) "(%rip)");             \
  }                                                                                      \
  static __attribute__((naked)) void resolve_##name(void) {                              \
    __asm__("endbr64\n\tpushq $" PLEAT_STRING(number) "\n\tjmp pleat_resolve_and_jump"); \
  }

/* Saves all that may carry an argument (rdi rsi rdx rcx r8 r9 rax r10 xmm0-7), asks
 * pleat_resolve_slot for the target, restores, drops the slot number and jumps. */
__attribute__((naked, used)) void pleat_resolve_and_jump(void) {
  __asm__(
      ".cfi_adjust_cfa_offset 8\n\t" /* the slot number */
      "pushq %rbp\n\t"
      ".cfi_adjust_cfa_offset 8\n\t"
      ".cfi_rel_offset %rbp, 0\n\t"
      "movq %rsp, %rbp\n\t"
      ".cfi_def_cfa_register %rbp\n\t"
      "pushq %rdi\n\t"
      "pushq %rsi\n\t"
      "pushq %rdx\n\t"
      "pushq %rcx\n\t"
      "pushq %r8\n\t"
      "pushq %r9\n\t"
      "pushq %rax\n\t"
      "pushq %r10\n\t"
      "subq $136, %rsp\n\t" /* 8 vectors, and 8 bytes that align the stack for the call */
      "movaps %xmm0, (%rsp)\n\t"
      "movaps %xmm1, 16(%rsp)\n\t"
      "movaps %xmm2, 32(%rsp)\n\t"
      "movaps %xmm3, 48(%rsp)\n\t"
      "movaps %xmm4, 64(%rsp)\n\t"
      "movaps %xmm5, 80(%rsp)\n\t"
      "movaps %xmm6, 96(%rsp)\n\t"
      "movaps %xmm7, 112(%rsp)\n\t"
      "movl 8(%rbp), %edi\n\t"
      "call pleat_resolve_slot\n\t"
      "movq %rax, %r11\n\t"
      "movaps (%rsp), %xmm0\n\t"
      "movaps 16(%rsp), %xmm1\n\t"
      "movaps 32(%rsp), %xmm2\n\t"
      "movaps 48(%rsp), %xmm3\n\t"
      "movaps 64(%rsp), %xmm4\n\t"
      "movaps 80(%rsp), %xmm5\n\t"
      "movaps 96(%rsp), %xmm6\n\t"
      "movaps 112(%rsp), %xmm7\n\t"
      "addq $136, %rsp\n\t"
      "popq %r10\n\t"
      "popq %rax\n\t"
      "popq %r9\n\t"
      "popq %r8\n\t"
      "popq %rcx\n\t"
      "popq %rdx\n\t"
      "popq %rsi\n\t"
      "popq %rdi\n\t"
      "popq %rbp\n\t"
      ".cfi_def_cfa %rsp, 16\n\t"
      "addq $8, %rsp\n\t"
      ".cfi_adjust_cfa_offset -8\n\t"
      "jmp *%r11");
}

/* The numbers are those of enum pleat_slot; the preprocessor cannot see an enum. */
PLEAT_JUMP(engine_execute, PLEAT_SYMBOL_ENGINE_EXECUTE, 0)
PLEAT_JUMP(saved_variable, PLEAT_SYMBOL_SAVED_VARIABLE, 1)
PLEAT_JUMP(register_hooks, PLEAT_SYMBOL_REGISTER_HOOKS, 2)
PLEAT_JUMP(unpack, PLEAT_SYMBOL_UNPACK, 3)
PLEAT_JUMP(unpack_intrusive, PLEAT_SYMBOL_UNPACK_INTRUSIVE, 4)
PLEAT_JUMP(set_gradient_edge, PLEAT_SYMBOL_SET_GRADIENT_EDGE, 5)
PLEAT_JUMP(pow_of_tensor, PLEAT_SYMBOL_POW, 6)
PLEAT_JUMP(pow_inplace, PLEAT_SYMBOL_POW_INPLACE, 7)
PLEAT_JUMP(gelu_backward, PLEAT_SYMBOL_GELU_BACKWARD, 8)
PLEAT_JUMP(silu_backward, PLEAT_SYMBOL_SILU_BACKWARD, 9)
PLEAT_JUMP(threshold_backward, PLEAT_SYMBOL_THRESHOLD_BACKWARD, 10)
PLEAT_JUMP(sigmoid_backward, PLEAT_SYMBOL_SIGMOID_BACKWARD, 11)
PLEAT_JUMP(tanh_backward, PLEAT_SYMBOL_TANH_BACKWARD, 12)
PLEAT_JUMP(leaky_relu_backward, PLEAT_SYMBOL_LEAKY_RELU_BACKWARD, 13)
PLEAT_JUMP(hardtanh_backward, PLEAT_SYMBOL_HARDTANH_BACKWARD, 14)
PLEAT_JUMP(elu_backward, PLEAT_SYMBOL_ELU_BACKWARD, 15)
PLEAT_JUMP(softmax_backward, PLEAT_SYMBOL_SOFTMAX_BACKWARD, 16)
PLEAT_JUMP(log_softmax_backward, PLEAT_SYMBOL_LOG_SOFTMAX_BACKWARD, 17)
PLEAT_JUMP(mul_of_tensors, PLEAT_SYMBOL_MUL, 18)
PLEAT_JUMP(div_of_tensors, PLEAT_SYMBOL_DIV, 19)
_Static_assert(PLEAT_SLOT_EXECUTE == 0 && PLEAT_SLOT_SAVED_VARIABLE == 1 &&
                   PLEAT_SLOT_REGISTER_HOOKS == 2 && PLEAT_SLOT_UNPACK == 3 &&
                   PLEAT_SLOT_UNPACK_INTRUSIVE == 4 && PLEAT_SLOT_SET_GRADIENT_EDGE == 5 &&
                   PLEAT_SLOT_POW == 6 && PLEAT_SLOT_POW_INPLACE == 7 &&
                   PLEAT_SLOT_GRADIENTS + PLEAT_GELU_BACKWARD == 8 &&
                   PLEAT_SLOT_GRADIENTS + PLEAT_SILU_BACKWARD == 9 &&
                   PLEAT_SLOT_GRADIENTS + PLEAT_THRESHOLD_BACKWARD == 10 &&
                   PLEAT_SLOT_GRADIENTS + PLEAT_SIGMOID_BACKWARD == 11 &&
                   PLEAT_SLOT_GRADIENTS + PLEAT_TANH_BACKWARD == 12 &&
                   PLEAT_SLOT_GRADIENTS + PLEAT_LEAKY_RELU_BACKWARD == 13 &&
                   PLEAT_SLOT_GRADIENTS + PLEAT_HARDTANH_BACKWARD == 14 &&
                   PLEAT_SLOT_GRADIENTS + PLEAT_ELU_BACKWARD == 15 &&
                   PLEAT_SLOT_GRADIENTS + PLEAT_SOFTMAX_BACKWARD == 16 &&
                   PLEAT_SLOT_GRADIENTS + PLEAT_LOG_SOFTMAX_BACKWARD == 17 &&
                   PLEAT_SLOT_GRADIENTS + PLEAT_MUL == 18 && PLEAT_SLOT_GRADIENTS + PLEAT_DIV == 19,
               "the jumps name their slots by number");

static const char* const slot_symbols[PLEAT_SLOTS] = {PLEAT_SYMBOL_ENGINE_EXECUTE,
                                                      PLEAT_SYMBOL_SAVED_VARIABLE,
                                                      PLEAT_SYMBOL_REGISTER_HOOKS,
                                                      PLEAT_SYMBOL_UNPACK,
                                                      PLEAT_SYMBOL_UNPACK_INTRUSIVE,
                                                      PLEAT_SYMBOL_SET_GRADIENT_EDGE,
                                                      PLEAT_SYMBOL_POW,
                                                      PLEAT_SYMBOL_POW_INPLACE,
                                                      PLEAT_SYMBOL_GELU_BACKWARD,
                                                      PLEAT_SYMBOL_SILU_BACKWARD,
                                                      PLEAT_SYMBOL_THRESHOLD_BACKWARD,
                                                      PLEAT_SYMBOL_SIGMOID_BACKWARD,
                                                      PLEAT_SYMBOL_TANH_BACKWARD,
                                                      PLEAT_SYMBOL_LEAKY_RELU_BACKWARD,
                                                      PLEAT_SYMBOL_HARDTANH_BACKWARD,
                                                      PLEAT_SYMBOL_ELU_BACKWARD,
                                                      PLEAT_SYMBOL_SOFTMAX_BACKWARD,
                                                      PLEAT_SYMBOL_LOG_SOFTMAX_BACKWARD,
                                                      PLEAT_SYMBOL_MUL,
                                                      PLEAT_SYMBOL_DIV};

#define PLEAT_RESOLVERS                                                                         \
  (void*)resolve_engine_execute, (void*)resolve_saved_variable, (void*)resolve_register_hooks,  \
      (void*)resolve_unpack, (void*)resolve_unpack_intrusive, (void*)resolve_set_gradient_edge, \
      (void*)resolve_pow_of_tensor, (void*)resolve_pow_inplace, (void*)resolve_gelu_backward,   \
      (void*)resolve_silu_backward, (void*)resolve_threshold_backward,                          \
      (void*)resolve_sigmoid_backward, (void*)resolve_tanh_backward,                            \
      (void*)resolve_leaky_relu_backward, (void*)resolve_hardtanh_backward,                     \
      (void*)resolve_elu_backward, (void*)resolve_softmax_backward,                             \
      (void*)resolve_log_softmax_backward, (void*)resolve_mul_of_tensors,                       \
      (void*)resolve_div_of_tensors
static void* const slot_resolvers[PLEAT_SLOTS] = {PLEAT_RESOLVERS};
__attribute__((used)) void* pleat_slots[PLEAT_SLOTS] = {PLEAT_RESOLVERS};

const char* pleat_slot_symbol(enum pleat_slot slot) { return slot_symbols[slot]; }

void pleat_set_slot(enum pleat_slot slot, void* target) {
  __atomic_store_n(&pleat_slots[slot], target, __ATOMIC_RELEASE);
}

/* Called by pleat_resolve_and_jump, at most once per slot and thread. */
__attribute__((used)) void* pleat_resolve_slot(unsigned slot) {
  void* const target = pleat_find_function(slot_symbols[slot]);
  if (target == NULL) pleat_no_target(slot_symbols[slot]);
  /* An install on another thread may have been quicker; then its function is the one to call. */
  void* expected = slot_resolvers[slot];
  if (__atomic_compare_exchange_n(&pleat_slots[slot], &expected, target, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE))
    return target;
  return expected;
}
