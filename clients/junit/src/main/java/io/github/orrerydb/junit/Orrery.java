package io.github.orrerydb.junit;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/** Gives a test class a server of its own: parameters of type {@link OrreryServer} are filled with it. */
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(OrreryExtension.class)
public @interface Orrery {
    /** Containers that the server has at the start, such as {@code shop/orders:/customer}. */
    String[] containers() default {};
}
