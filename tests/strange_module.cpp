// A module as an older build would have left it beside the program: for the test that it is refused.
struct HostModule {
  const char* build;
};
extern "C" __attribute__((visibility("default"))) const HostModule* train_host_module() {
  static const HostModule module{"0.0.1 interface 0"};
  return &module;
}
