# The kernels for every architecture, as bytes. Without nvcc there are none.
    .section .rodata
    .balign 64
    .globl pleat_device_image
    .hidden pleat_device_image
pleat_device_image:
#ifdef PLEAT_HAVE_DEVICE_CODE
    .incbin "pleat_kernels.fatbin"
#endif
    .globl pleat_device_image_end
    .hidden pleat_device_image_end
pleat_device_image_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
