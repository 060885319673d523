from hypothesis import HealthCheck, settings

# How long an example takes depends on the machine and what else it does; that must not decide a test.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
