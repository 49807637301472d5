package io.github.orrerydb.junit;

import java.util.List;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/** What {@link Orrery} does: one server for a test class. */
public final class OrreryExtension implements BeforeAllCallback, AfterAllCallback, ParameterResolver {
    private OrreryServer server;

    @Override
    public void beforeAll(ExtensionContext context) {
        Orrery wanted = context.getRequiredTestClass().getAnnotation(Orrery.class);
        server = OrreryServer.start(wanted == null ? List.of() : List.of(wanted.containers()));
    }

    @Override
    public void afterAll(ExtensionContext context) {
        server.close();
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == OrreryServer.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        return server;
    }
}
