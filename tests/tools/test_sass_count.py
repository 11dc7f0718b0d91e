"""tools/bench/sass_count.py counts the shortest turn of a loop through the loads and Philox."""

import importlib.util
import pathlib

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench" / "sass_count.py"


def load():
    spec = importlib.util.spec_from_file_location("sass_count", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# A loop from 0x10 to 0xa0. Through the load and either Philox branch; the slow one has a call.
LISTING = """
    Function : pleat_encode_float32_4
        /*0000*/    S2R R0, SR_TID.X ;   /* 0x0 */
        /*0010*/    ISETP.NE P0, PT, R0, RZ, PT ;   /* 0x0 */
        /*0020*/    @P0 BRA 0x40 ;   /* 0x0 */
        /*0030*/    LDG.E R1, desc[UR4][R2.64] ;   /* 0x0 */
        /*0040*/    LDG.E.128 R4, desc[UR4][R2.64] ;   /* 0x0 */
        /*0050*/    BRA.DIV UR4, 0xc0 ;   /* 0x0 */
        /*0060*/    @P1 BRA 0xd0 ;   /* 0x0 */
        /*0070*/    IMAD.WIDE.U32 R8, R9, -0x2daee0ad, RZ ;   /* 0x0 */
        /*0080*/    FADD R1, R2, R3 ;   /* 0x0 */
        /*0090*/    STG.E desc[UR4][R2.64], R8 ;   /* 0x0 */
        /*00a0*/    @!P0 BRA 0x10 ;   /* 0x0 */
        /*00b0*/    EXIT ;   /* 0x0 */
        /*00c0*/    EXIT ;   /* 0x0 */
        /*00d0*/    CALL.REL.NOINC 0xf0 ;   /* 0x0 */
        /*00e0*/    BRA 0x90 ;   /* 0x0 */
        /*00f0*/    RET.REL.NODEC R20 0x0 ;   /* 0x0 */
"""


def test_the_shortest_turn_is_counted():
    tool = load()
    kernels = tool.parse(LISTING)
    turn = tool.hot_turn("pleat_encode_float32_4", kernels["pleat_encode_float32_4"])
    # 10, 20, 40, 50, 60, 70, 80, 90, a0: the branch over 30 is shorter, d0 ends in a call
    assert [tool.operation(text) for text in turn] == [
        "ISETP", "BRA", "LDG", "BRA", "BRA", "IMAD", "FADD", "STG", "BRA",
    ]


def test_a_turn_without_philox_is_not_taken():
    tool = load()
    plain = LISTING.replace("-0x2daee0ad", "0x11")
    try:
        tool.hot_turn("pleat_encode_float32_4", tool.parse(plain)["pleat_encode_float32_4"])
    except SystemExit as stop:
        assert "no loop" in str(stop)
    else:
        raise AssertionError("a loop without Philox was counted")
