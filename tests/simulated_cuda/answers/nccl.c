int ncclGetVersion(int* version) {
  *version = 22807;
  return 0;
}
